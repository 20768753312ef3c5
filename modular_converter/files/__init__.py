"""Files on disk: the files that a command line means, folders, links, the places of generated files, writing."""
