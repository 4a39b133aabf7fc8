-- The planner settings of functions that many share. Where a function says /* planner: NAME */, the build writes the line of that name
-- (scripts/embed-sql.mjs). Settings that few have stand in the function itself, with this one, whose price is a plan that knows no values:
-- `set plan_cache_mode = force_generic_plan` saves planning on each call, or each new session.
--
-- Why any: tables of queues, locks and actors are empty one moment and long the next, and statistics are of neither. On a table that
-- ANALYZE saw empty, the planner reads all of it, and goes on doing so when it has a million rows.

-- planner: probe
-- A few rows by an index, in its order. A bitmap would read and sort all that fit before the first is taken.
set enable_seqscan = off set enable_bitmapscan = off set jit = off

-- planner: batch
-- An array of keys or ids, joined with tables by hash or by index. A merge join would read an index from its start.
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off

-- planner: loop
-- An array that is short next to the tables: for each element its rows by an index. A hash join would read a table to build one.
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set enable_hashjoin = off set jit = off
