"""`cheetah run`: runs any program on each machine of a cluster, each on its part of one source.

| module | content |
|---|---|
| `cli` | the command line |
| `parts` | the division of a source, and the words of the program for a part |
| `at_worker` | runs at a worker: the mount, the program, and the results that it leaves |
| `workers` | the workers of a Dask scheduler, or threads of this process |
| `hub` | gives out the parts, fetches the results, and keeps the record |
"""
