"""Where a controller keeps what it has decided: a file, or etcd."""
