"""`cheetah bench storage`: forensic steps on directories, disks and drives, timed with the caches under control."""
