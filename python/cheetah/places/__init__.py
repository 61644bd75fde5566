"""Where the files of a source lie: the process that lists them for `cheetah search --files`."""
