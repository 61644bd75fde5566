//! The description that an NBD server gives of itself and its export, which distinguishes it from another server at the
//! same address.

use cheetah_nbd::proto::X_CHEETAH;
use serde::{Deserialize, Serialize};

use crate::clean::clean;

/// The server that a source is read from, as it describes itself: without control characters, each field of at most 256
/// characters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServedBy {
    /// The export's name; empty for the server's default.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub export: String,
    /// The machine an agent runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The disk or file an agent serves, as it was named on that machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// A random id of an agent's process. An agent that was started again has another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The description of a server that is not an agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// How the connections to it are protected, as a sentence. It is not part of the server's description, and does not
    /// identify the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// The locations to which a web server redirected the request, in order, without their queries. The content comes from
    /// the last one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redirections: Vec<String>,
}

/// The parts of an agent's description that are used here.
#[derive(Deserialize)]
struct Described {
    location: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    host: Option<String>,
    #[serde(default)]
    run: Option<String>,
}

impl ServedBy {
    /// Reads the description of the export `export` (NBD_INFO_DESCRIPTION). An agent's is one line of JSON behind
    /// [`X_CHEETAH`].
    pub fn new(export: &str, description: Option<&str>) -> Self {
        let field = |text: &str| Some(clean(text)).filter(|text| !text.is_empty());
        let export = clean(export);
        let json = description.and_then(|text| text.strip_prefix(X_CHEETAH));
        match json.and_then(|json| serde_json::from_str::<Described>(json).ok()) {
            Some(Described { location, name, host, run }) => Self {
                // An agent has one export, which is the default.
                export: name.as_deref().and_then(field).filter(|_| export.is_empty()).unwrap_or(export),
                host: host.as_deref().and_then(field),
                path: field(&location),
                instance: run.as_deref().and_then(field),
                ..Self::default()
            },
            None => Self { export, description: description.and_then(field), ..Self::default() },
        }
    }

    /// A name for a file that shows the source: the export's name, without slashes.
    pub fn file_name(&self) -> String {
        match self.export.replace('/', "_").as_str() {
            "" | "." | ".." => "nbd".to_owned(),
            name => name.to_owned(),
        }
    }

    /// Returns whether it is a Cheetah agent.
    pub fn is_agent(&self) -> bool {
        self.path.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_names_its_disk_and_its_process() {
        let line =
            format!(r#"{X_CHEETAH}{{"kind":"raw","location":"/dev/s\u001bda","size":1,"host":"pc","run":"07af"}}"#);
        let server = ServedBy::new("sda", Some(&line));
        let field = |text: &str| Some(text.to_owned());
        let expected = ServedBy {
            export: "sda".into(),
            host: field("pc"),
            path: field("/dev/sda"),
            instance: field("07af"),
            ..ServedBy::default()
        };
        assert_eq!(server, expected);
        assert!(server.is_agent());
        let json = serde_json::to_string(&server).unwrap();
        assert_eq!(serde_json::from_str::<ServedBy>(&json).unwrap(), server);
    }

    #[test]
    fn the_default_export_has_the_name_that_the_agent_gives() {
        let line = format!(r#"{X_CHEETAH}{{"location":"/dev/sda","name":"sda/1"}}"#);
        assert_eq!(ServedBy::new("", Some(&line)).file_name(), "sda_1");
        assert_eq!(ServedBy::new("disk", Some(&line)).file_name(), "disk");
        assert_eq!(ServedBy::new("", None).file_name(), "nbd");
        assert_eq!(ServedBy::new("..", None).file_name(), "nbd");
    }

    #[test]
    fn another_server_is_identified_by_its_description() {
        for text in ["the disk of pc 7", "x-cheetah:nonsense", "x-cheetah:{}"] {
            let server = ServedBy::new("", Some(text));
            assert_eq!(server.description.as_deref(), Some(text));
            assert!(!server.is_agent());
        }
        assert_eq!(ServedBy::new("", None), ServedBy::default());
    }
}
