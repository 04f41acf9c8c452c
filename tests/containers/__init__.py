"""The image of conf/docker, its compose files, and the cluster of conf/kubernetes."""
