"""Search where the bytes lie: at the nodes beside at the examiner, and the engine beside other programs."""
