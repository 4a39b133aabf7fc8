// The certificates of a proxy to the internet are read by each Node as it starts, for 60 ms. The tests start hundreds, which speak to
// this machine alone, unless a bucket elsewhere was named.
if (process.env['PAWL_S3_BUCKET'] === undefined) delete process.env['NODE_EXTRA_CA_CERTS'];
