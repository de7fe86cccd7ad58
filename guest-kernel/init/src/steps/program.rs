//! The whole program: steps and loops.

use super::table::{Rounds, Step, Word, parse_word};

/// Deepest nesting of loops.
const MAX_DEPTH: usize = 8;

/// A step or a repeated list of them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node {
    /// A step and the word it was written as.
    Step {
        /// As written.
        text: String,
        /// What it means.
        step: Step,
    },
    /// `body`, again and again.
    Loop {
        /// How often.
        rounds: Rounds,
        /// What is repeated.
        body: Vec<Node>,
    },
}

/// A word that cannot be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadStep {
    /// The word.
    pub(crate) word: String,
    /// One line for people.
    pub(crate) message: String,
}

/// Reads all words, before anything runs. A word may hold several steps
/// separated by `;`, since Linux passes at most 31 words to init.
pub(crate) fn parse_program<'a>(
    words: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<Node>, BadStep> {
    // The list being filled is the last one; the ones before wait for an `end`.
    let mut open: Vec<(Rounds, &str)> = Vec::new();
    let mut lists: Vec<Vec<Node>> = vec![Vec::new()];
    let bad = |word: &str, message: String| BadStep {
        word: word.to_owned(),
        message,
    };
    let pieces = words
        .into_iter()
        .flat_map(|word| word.split(';'))
        .filter(|word| !word.is_empty());
    for word in pieces {
        let node = match parse_word(word).map_err(|message| bad(word, message))? {
            Word::Step(step) => Node::Step {
                text: word.to_owned(),
                step,
            },
            Word::Loop(rounds) => {
                if open.len() == MAX_DEPTH {
                    return Err(bad(word, format!("loops nest deeper than {MAX_DEPTH}")));
                }
                open.push((rounds, word));
                lists.push(Vec::new());
                continue;
            }
            Word::End => match (open.pop(), lists.pop()) {
                (Some((rounds, _)), Some(body)) => Node::Loop { rounds, body },
                _ => return Err(bad(word, "`end` without `loop=N` before it".to_owned())),
            },
        };
        if let Some(list) = lists.last_mut() {
            list.push(node);
        }
    }
    match open.pop() {
        Some((_, word)) => Err(bad(word, format!("`{word}` has no matching `end`"))),
        None => Ok(lists.pop().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests;
