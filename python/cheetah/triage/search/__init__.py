"""The things to look for: keywords and YARA rules, in content and in names, and the hashes of lists."""
