"""Messages: the model, the stored-record layout and the codecs on it."""
