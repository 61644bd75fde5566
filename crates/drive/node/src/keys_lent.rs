//! The record of the keys that a node was lent for an export: for which tasks, and whether they are wiped.

use std::sync::Arc;

use cheetah_control::api::KeyLent;
use parking_lot::Mutex;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The most tasks for which keys are lent for one export: its receipt names them all.
const TASKS_MAX: usize = 100;

/// The keys that were lent for an export.
#[derive(Default)]
pub(crate) struct KeysLent(Mutex<Vec<Task>>);

struct Task {
    /// `wiped` is left as it is: see `held`.
    lent: KeyLent,
    /// Each copy of the keys has a clone.
    held: Arc<()>,
}

/// Says that a copy of keys exists, until it is dropped.
pub(crate) struct Held {
    _counted: Arc<()>,
}

impl KeysLent {
    /// Notes that keys are lent for `task` by a member; `None` if they were lent for too many others.
    pub fn note(&self, task: &str, by: &str) -> Option<Held> {
        // Fails only for years of more than four digits.
        let now = OffsetDateTime::now_utc().format(&Rfc3339).unwrap_or_default();
        let mut tasks = self.0.lock();
        if let Some(same) = tasks.iter_mut().find(|known| known.lent.task == task) {
            same.lent.last = now;
            same.lent.times += 1;
            return Some(Held { _counted: Arc::clone(&same.held) });
        }
        if tasks.len() >= TASKS_MAX {
            return None;
        }
        let (task, by, held) = (task.to_owned(), by.to_owned(), Arc::<()>::default());
        let lent = KeyLent { task, by, first: now.clone(), last: now, times: 1, wiped: false };
        tasks.push(Task { lent, held: Arc::clone(&held) });
        Some(Held { _counted: held })
    }

    /// All of them, for a receipt.
    pub fn all(&self) -> Vec<KeyLent> {
        let is_wiped = |task: &Task| Arc::strong_count(&task.held) == 1;
        self.0.lock().iter().map(|task| KeyLent { wiped: is_wiped(task), ..task.lent.clone() }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_named_once_with_its_lender_and_whether_every_copy_is_wiped() {
        let keys = KeysLent::default();
        let copies = ["a", "a", "b"].map(|task| keys.note(task, "desk (examiner)").unwrap());
        let shown = || keys.all().into_iter().map(|lent| (lent.task, lent.times, lent.wiped)).collect::<Vec<_>>();
        assert_eq!(shown(), [("a".to_owned(), 2, false), ("b".to_owned(), 1, false)]);
        let [first, second, third] = copies;
        drop((first, third));
        assert_eq!(shown(), [("a".to_owned(), 2, false), ("b".to_owned(), 1, true)]);
        drop(second);
        assert_eq!(shown()[0], ("a".to_owned(), 2, true));
        let lent = &keys.all()[0];
        assert_eq!(lent.by, "desk (examiner)");
        assert!(lent.first <= lent.last && lent.first.starts_with("20"), "{lent:?}");
    }

    #[test]
    fn keys_are_lent_for_as_many_tasks_as_a_receipt_names() {
        let keys = KeysLent::default();
        let note = |number: usize| keys.note(&number.to_string(), "desk").is_some();
        assert!((0..TASKS_MAX).all(note) && !note(TASKS_MAX) && note(0));
    }
}
