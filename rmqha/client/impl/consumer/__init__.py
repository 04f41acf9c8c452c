"""The consuming side: pull loop, local caches of queues, rebalance, consume threads."""
