"""Clusters on this host that stay: `rmqha up`, `down`, `ps`, `logs`."""
