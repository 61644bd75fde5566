//! `cheetah bench`: which storage makes forensic work fast. The work is done by the Python package, which this becomes.

use super::python::{Verb, Words};
use crate::failure::Result;
use crate::ui::Ui;

const VERB: Verb = Verb { name: "bench", module: "cheetah.bench", packages: &["jinja2", "rich"] };

/// What `bench` is told.
#[derive(Debug, clap::Args)]
#[command(about = "Measure which storage makes forensic work fast, and show it with evidence")]
#[command(
    override_usage = "cheetah bench storage TARGET… [OPTIONS]
       cheetah bench PART [--quick] [--out DIR]
       cheetah bench --all [TARGET…] [--quick] [--out DIR]
       cheetah bench compare A.json B.json
       cheetah bench report DIR",
    long_about = "Measures which storage makes forensic work fast, and shows it with evidence.

The steps of the work run on each target, with the real tools: copy an image in, hash it, strings, unallocated space, \
carving, recovering files, tar, and a matrix of reads and writes. Targets take turns, every step begins with cold caches \
unless told otherwise, and what was in memory before it is measured, not assumed. A table says how long each step took, \
and how many times as fast as the baseline that is. DIR gets report.html, results.json, results.csv and samples.jsonl.

  cheetah bench storage /mnt/scratch /mnt/raid --image case42.raw
  cheetah bench storage disk=/mnt/scratch ram:stripe:64KiB@node1,node2 --baseline disk
  cheetah bench storage /mnt/scratch ram:stripe@local:3 --sweep unit=16KiB,64KiB,256KiB
  cheetah bench compare before/results.json after/results.json",
    after_help = "What it is told:
  storage TARGET…      A directory on the storage to measure; or a drive to be made for the run:
                       ram:LAYOUT[:UNIT][:FS]@node1,node2, or @local:N for nodes on this machine;
                       NAME=TARGET gives it a name
  --image IMAGE        The image that is worked on; one is made unless told
  --baseline NAME      The target that the others are compared with [default: the first]
  --steps LIST         Only these of copy,md5sum,sha256sum,strings,unallocated,foremost,
                       scalpel,tsk_recover,tar,sorter,fio
  --repetitions N      How often each is measured [default: 3]
  --states LIST        cold, warm, or both [default: cold]
  --quick | --full     Short, to see that it works; or every cell of the matrix, for hours
  --sweep KEY=A,B,…    Each of these in turn: unit, layout, nodes, fs, readahead; may be repeated
  --step-limit TIME    What takes longer is ended, and said [default: 1h]
  --out DIR            Folder for the results [default: cheetah-bench]
  --resume             Go on where an earlier run in DIR was interrupted
  --beside-evidence    Measure in a place that holds evidence
  --json               Progress and result as JSON, a line each
  PART                 One of the project's own benchmarks: transfer, drive, triage, probe, …;
                       they need a checkout of Cheetah (--sources DIR) and root
  --all                Storage and every part, in one report
  compare A B          Two results.json beside each other: what became faster, what slower
  report DIR           Renders the report of DIR again

Exit codes: 0 done, 1 something was not measured, 2 misused, 3 refused because of evidence.

It runs in Python 3.11 or later with the package in python/ of the sources:
  pip install './python[bench]'
CHEETAH_PYTHON says which Python; python3 on the PATH otherwise. docs/bench.md has more."
)]
pub struct Args {
    #[command(flatten)]
    words: Words,
}

/// Runs it, in this process.
pub async fn run(args: Args, ui: Ui) -> Result<()> {
    VERB.run(args.words, ui)
}
