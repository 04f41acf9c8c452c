"""Half messages: kept back until their producer says commit or rollback."""
