"""The message model: layout, codecs, ids."""
