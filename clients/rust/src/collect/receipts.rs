//! Which batches of events may be acknowledged: those whose outcomes the caller has all taken.

use std::collections::{BTreeMap, HashMap};

use tokio::sync::mpsc;

use super::stream::{Command, Key};

/// Holds back the acknowledgement of an outcome until the outcome is stored, which dropping this
/// reports.
#[derive(Debug)]
pub(super) struct Receipt {
    key: Key,
    commands: mpsc::UnboundedSender<Command>,
}

impl Receipt {
    pub fn new(key: Key, commands: mpsc::UnboundedSender<Command>) -> Self {
        Self { key, commands }
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        let key = std::mem::take(&mut self.key);
        let _ = self.commands.send(Command::Stored(key)); // a stream that has ended needs none
    }
}

/// The batches that came and are not acknowledged yet.
#[derive(Debug, Default)]
pub(super) struct Unstored {
    /// How many outcomes of each batch are not stored, by its cursor.
    batches: BTreeMap<u64, usize>,
    /// The batch of each outcome that is not stored.
    outcomes: HashMap<Key, u64>,
    stored: u64,
}

impl Unstored {
    /// A batch came.
    pub fn came(&mut self, cursor: u64) {
        self.batches.insert(cursor, 0);
    }

    /// An outcome of that batch goes to its caller.
    pub fn hold(&mut self, key: Key, cursor: u64) {
        if self.outcomes.insert(key, cursor).is_none() {
            *self.batches.entry(cursor).or_default() += 1;
        }
    }

    /// An outcome is stored.
    pub fn stored(&mut self, key: &Key) {
        let batch = self.outcomes.remove(key);
        if let Some(count) = batch.and_then(|cursor| self.batches.get_mut(&cursor)) {
            *count -= 1;
        }
    }

    /// The cursor up to which all is stored; 0: nothing is.
    pub fn cursor(&mut self) -> u64 {
        while let Some(first) = self.batches.first_entry()
            && *first.get() == 0
        {
            self.stored = first.remove_entry().0;
        }
        self.stored
    }
}
