"""Remote work over delayed and lossy links: triage, acquisition, tuning, short blocks, writing; and transfers of images."""
