//! The machines of a room.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::run::{Ran, program, run};
use super::service::PATIENCE;
use super::{Desk, Node, Service, text};

/// Machines, each with a configuration directory of its own.
pub struct Lab(pub Desk);

impl Lab {
    /// A lab whose machine `examiner` has the room `lab`.
    pub fn new() -> Self {
        let lab = Self(Desk::new());
        lab.at("examiner", &["room", "init", "lab"]).ok();
        lab
    }

    pub fn config(&self, machine: &str) -> PathBuf {
        self.0.at(machine)
    }

    pub fn room_directory(&self) -> PathBuf {
        self.config("examiner").join("cheetah/rooms/lab")
    }

    pub fn command(&self, machine: &str, args: &[&str]) -> Command {
        let mut command = program();
        command.env("XDG_CONFIG_HOME", self.config(machine)).env("XDG_STATE_HOME", self.config(machine).join("state"));
        command.env_remove("CHEETAH_ROOM").arg("--json").args(args);
        command
    }

    /// Runs a command on a machine.
    pub fn at(&self, machine: &str, args: &[&str]) -> Ran {
        run(self.command(machine, args))
    }

    /// Starts a service on a machine, and waits for its first event.
    pub fn start(&self, machine: &str, args: &[&str], event: &str) -> Service {
        Service::spawn(self.command(machine, args), event).unwrap_or_else(|why| panic!("{args:?}: {why}"))
    }

    /// Lets machines in, on loopback.
    pub fn serve(&self, machine: &str, room: &str) -> Service {
        self.start(machine, &["room", "serve", "--room", room, "--listen", "127.0.0.1:0"], "ready")
    }

    /// An invitation of the room `lab`, whose server runs.
    pub fn invite(&self, more: &[&str]) -> String {
        let made = self.at("examiner", &[&["room", "invite", "--no-serve"], more].concat()).ok().json();
        text(&made, "invitation").to_owned()
    }

    /// Runs a command on a machine, again and again, until the result is as it should be.
    pub fn eventually(&self, machine: &str, args: &[&str], is_so: impl Fn(&Ran) -> bool) -> Ran {
        let started = Instant::now();
        loop {
            let ran = self.at(machine, args);
            if is_so(&ran) {
                return ran;
            }
            assert!(started.elapsed() < PATIENCE, "{args:?}: {} {}", ran.out(), ran.stderr);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A node on a machine, on ports of its own choice.
    pub fn node(&self, machine: &str, name: &str, more: &[&str]) -> Node {
        let args = ["node", "--memory", "32MiB", "--listen", "127.0.0.1:0", "--name", name];
        Node::of(self.start(machine, &[&args[..], more].concat(), "ready"))
    }

    pub fn list(&self) -> Value {
        self.at("examiner", &["room", "list"]).ok().json()
    }

    pub fn members(&self) -> Vec<Value> {
        self.list()["members"].as_array().unwrap().clone()
    }
}

/// The port of an enrolment server.
pub fn port(server: &Service) -> u16 {
    text(&server.ready, "listen").parse::<SocketAddr>().unwrap().port()
}
