//! `cheetah`: the idle RAM of a room full of machines as one forensic drive.
//!
//! [`commands`] has one file per verb, [`answers`] what they print for programs, [`ui`] prints output, and [`failure`]
//! defines errors and exit codes.

#![deny(unsafe_code)]

mod answers;
mod cli;
mod commands;
mod desk;
mod failure;
mod os;
mod overview;
mod room;
mod signals;
mod ui;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use cheetah_device::supervise;
use cheetah_kit::wiping::WipingAllocator;
use failure::Context as _;
use mimalloc::MiMalloc;

// musl's own allocator takes a lock per call, which costs a node half of its throughput. What is freed while a node has a search is
// wiped.
#[global_allocator]
static ALLOCATOR: WipingAllocator<MiMalloc> = WipingAllocator::over(MiMalloc);

fn main() -> ExitCode {
    let cli = match cli::Cli::read() {
        Ok(cli) => cli,
        Err(message) => return explain(&message),
    };
    cli.command.keep_files_private();
    ui::log::start(cli.global.verbose);
    supervise::watch();
    let ui = ui::Ui::new(cli.global.json);
    cli.command.prepare();
    let result = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start worker threads")
        .and_then(|runtime| {
            // A panic of the command itself: the hook has reported it.
            let command = AssertUnwindSafe(|| runtime.block_on(run(cli, &ui)));
            let result =
                catch_unwind(command).unwrap_or_else(|_| Err(failure::Failure::failed("the command broke off")));
            // Reads that will never be answered must not keep a finished command from exiting.
            runtime.shutdown_background();
            result
        });
    let result = match supervise::failure() {
        Some(why) => Err(failure::defect(why, result.err())),
        None => result.and_then(|()| ui::stdout::finish()),
    };
    let code = match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            ui.failure(&failure);
            failure.code.into()
        }
    };
    ui::stderr::flush(ui::stderr::FLUSH_TIMEOUT);
    code
}

/// Prints the help that was asked for, or what is wrong with the command line.
fn explain(message: &clap::Error) -> ExitCode {
    if message.use_stderr() {
        message.exit();
    }
    match ui::stdout::print_help(message) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            ui::Ui::new(false).failure(&failure);
            ui::stderr::flush(ui::stderr::FLUSH_TIMEOUT);
            failure.code.into()
        }
    }
}

/// Runs the command to its end, or until the process has failed and the command does not notice.
async fn run(cli: cli::Cli, ui: &ui::Ui) -> failure::Result<()> {
    tokio::select! {
        result = cli.run(ui) => result,
        () = signals::abandoned() => Err(failure::Failure::failed("the command broke off")),
    }
}
