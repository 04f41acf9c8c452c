"""Operations on topics, groups, settings, accounts and dead letters of a cluster, for the commands and the console."""
