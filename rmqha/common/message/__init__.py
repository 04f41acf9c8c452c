"""Messages: the model, the layout of stored records, and their codecs."""
