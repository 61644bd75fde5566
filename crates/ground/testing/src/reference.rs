//! Files in docs/reference that are generated from the code's types, and compared with them by tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Compares files with generated ones, by their paths below docs/reference. With the variable `UPDATE=1`, writes them
/// instead, and removes what else is in `folder`. `mend` is the command that does so.
///
/// # Panics
///
/// If a file differs, is missing, or is left over.
pub fn compare(generated: &BTreeMap<String, String>, folder: Option<&str>, mend: &str) {
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference");
    let update = std::env::var_os("UPDATE").is_some_and(|update| update == "1");
    let mut differing: Vec<String> = Vec::new();
    for (name, text) in generated {
        let path = reference.join(name);
        if fs::read_to_string(&path).is_ok_and(|committed| committed == *text) {
            continue;
        }
        match path.parent() {
            Some(parent) if update => {
                fs::create_dir_all(parent).and_then(|()| fs::write(&path, text)).expect("the reference can be written");
            }
            _ => differing.push(name.clone()),
        }
    }
    for name in folder.into_iter().flat_map(|folder| files_in(&reference, folder)) {
        match generated.contains_key(&name) {
            true => {}
            false if update => fs::remove_file(reference.join(&name)).expect("a file can be removed"),
            false => differing.push(name),
        }
    }
    assert!(
        differing.is_empty(),
        "docs/reference differs from the code in {}; to mend it: {mend}",
        differing.join(", ")
    );
}

/// The files in a folder, by their paths below `reference`.
fn files_in(reference: &Path, folder: &str) -> Vec<String> {
    let entries = fs::read_dir(reference.join(folder)).into_iter().flatten().flatten();
    let name = |path: PathBuf| path.file_name().map(|name| format!("{folder}/{}", name.to_string_lossy()));
    entries.filter_map(|entry| name(entry.path())).collect()
}

/// Removes the links to items of the code from the descriptions in a schema.
pub fn unlink(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(text)) = members.get_mut("description") {
                *text = plain(text);
            }
            members.values_mut().for_each(unlink);
        }
        Value::Array(items) => items.iter_mut().for_each(unlink),
        _ => {}
    }
}

fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, linked)) = rest.split_once("[`") {
        let Some((name, after)) = linked.split_once("`]") else { break };
        plain.push_str(before);
        plain.push_str(&format!("`{}`", name.trim_start_matches("Self::")));
        // The target of the link, which is an item of the code.
        rest = after.strip_prefix('(').and_then(|target| target.split_once(')')).map_or(after, |(_, after)| after);
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn links_to_items_become_their_names() {
        assert_eq!(
            plain("At most [`DROPPED_MAX`], see [`lease`](Self::lease) there."),
            "At most `DROPPED_MAX`, see `lease` there."
        );
        assert_eq!(plain("As `[offset, length]` in [`Self::at`]."), "As `[offset, length]` in `at`.");
    }
}
