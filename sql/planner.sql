-- The planner settings that many functions share. The build (scripts/embed-sql.mjs) replaces /* planner: NAME */ in a function by the
-- settings of that name. Rarer settings are written in the function itself. One of them is `set plan_cache_mode = force_generic_plan`,
-- which saves the planning of each call or each new session. Its price is a plan that ignores the values of parameters.
--
-- Why settings are needed: tables of queues, locks and actors are empty at one moment and long at the next, and their statistics are always
-- late. If ANALYZE saw a table empty, the planner reads the whole table, and still does so when the table has a million rows.

-- planner: probe
-- Reads a few rows by an index, in its order. A bitmap would read and sort all matching rows before it returns the first.
set enable_seqscan = off set enable_bitmapscan = off set jit = off

-- planner: batch
-- Joins an array of keys or ids with tables, by hash or by index. A merge join would read an index from its start.
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off

-- planner: loop
-- The array is short compared with the tables: an index finds the rows of each element. A hash join would read a whole table first.
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set enable_hashjoin = off set jit = off
