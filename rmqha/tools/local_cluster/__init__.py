"""Persistent clusters on this host: `rmqha up`, `down`, `ps`, `logs`."""
