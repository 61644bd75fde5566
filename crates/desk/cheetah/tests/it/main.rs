//! Cheetah as its users run it: the real binary, real processes, the field's own tools.
//!
//! One program, so that it is linked once; one module a theme. Tests that a machine cannot run print
//! `SKIPPED:` and why.

// Tests may panic; their sizes are a few MiB.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

mod support;

mod acquire;
mod archive;
mod asking;
mod at_nodes;
mod attach;
mod bench;
mod cable;
mod carving;
mod certificates;
mod compressed;
mod custody;
mod degraded;
mod demo;
mod diverged;
mod doctor;
mod drain;
mod evidence;
mod export;
mod failures;
mod file_names;
mod filesystems;
mod finding;
mod foreign;
mod grow;
mod help;
mod killed_nodes;
mod known_sets;
mod lazy;
mod leftovers;
mod lend;
mod lent_keys;
mod lifecycle;
mod lvm;
mod md;
mod members;
mod misuse;
mod mount;
mod object_store;
mod other_machines;
mod panics;
mod parts;
mod positions;
mod private_files;
mod probe;
mod proof;
mod rebalance;
mod receipts;
mod refused;
mod roles;
mod room;
mod sealed;
mod sealed_keys;
mod sealed_use;
mod search;
mod search_again;
mod search_at_nodes;
mod search_files;
mod search_yara;
mod secured;
mod serve;
mod several_disks;
mod shadow_copies;
mod slow_links;
mod snapshots;
mod sources;
mod space;
mod stacked;
mod static_binary;
mod survive;
mod thin;
mod triage;
mod unlock;
mod unwritable;
mod watch;
mod web;
mod windows;
mod wiped_memory;
mod wire;
