"""Relaying: a replica that is not the master passes the requests that are meant for the master on to it."""
