"""The message model: layout, codecs and ids."""
