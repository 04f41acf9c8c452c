"""Transport: commands, codecs, server and client on selectors."""
