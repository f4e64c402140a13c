//! The last answer of NVML: the file that process `source:nvml` writes and every scan reads.

use std::path::PathBuf;

use serde::Deserialize;

use super::facts::Facts;
use super::request::Request;

/// The answer file. On a simulated node it has facts only, which answer every request.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// The last facts; a later failure does not remove them.
    pub facts: Option<Facts>,
    /// The request that `facts` answer.
    pub facts_of: Option<Request>,
    /// Attempts that failed since then, or since the start if there are no facts.
    pub failures: u32,
    /// The request that the last of them was for.
    pub failed: Option<Request>,
    /// Why the facts are missing or out of date, and the cure.
    pub problem: Option<String>,
}

impl Answer {
    /// The answer in the first of these files that can be read; empty if there is none yet.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "no attribute, and larger than one")]
    pub fn read(files: &[PathBuf]) -> Self {
        let text = files.iter().find_map(|file| std::fs::read_to_string(file).ok());
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    /// The part that is valid for a host in the state of `request`: nothing from another driver or another boot is.
    #[must_use]
    pub fn to(mut self, request: &Request) -> Self {
        let is_foreign = |of: &Option<Request>| of.as_ref().is_some_and(|of| !of.is_of_same_driver(request));
        if is_foreign(&self.facts_of) {
            (self.facts, self.facts_of) = (None, None);
        }
        if is_foreign(&self.failed) {
            (self.failures, self.failed, self.problem) = (0, None, None);
        }
        self
    }

    /// Whether NVML has not answered about a GPU yet, so that its absence from the answer means nothing.
    #[must_use]
    pub fn is_awaited(&self, request: &Request, address: &str) -> bool {
        let is_answered = match (&self.facts, &self.facts_of) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(_), Some(of)) => of.gpus.contains_key(address) && of.gpus.get(address) == request.gpus.get(address),
        };
        !is_answered && self.failures == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvml::request::GpuState;

    fn request(driver: &str, gpus: &[(&str, &str)]) -> Request {
        let state = |uuid: &str| GpuState { uuid: Some(uuid.to_owned()), instances: Vec::new() };
        let gpus = gpus.iter().map(|(address, uuid)| ((*address).to_owned(), state(uuid))).collect();
        Request { driver_version: Some(driver.to_owned()), gpus, ..Request::default() }
    }

    fn facts_of(request: &Request) -> Answer {
        Answer { facts: Some(Facts::default()), facts_of: Some(request.clone()), ..Answer::default() }
    }

    #[test]
    fn nothing_holds_of_another_driver() {
        let (old, new) = (request("1.0", &[("a", "x")]), request("2.0", &[("a", "x")]));
        assert_eq!(facts_of(&old).to(&old), facts_of(&old));
        assert_eq!(facts_of(&old).to(&new), Answer::default());
        let failed = Answer { failures: 3, failed: Some(old), problem: Some("why".to_owned()), ..Answer::default() };
        assert_eq!(failed.to(&new), Answer::default());
    }

    #[test]
    fn a_gpu_is_awaited_until_an_answer_is_about_it_or_an_attempt_has_failed() {
        let (one, other) = (request("1.0", &[("a", "x")]), request("1.0", &[("a", "x"), ("b", "y")]));
        assert!(Answer::default().is_awaited(&one, "a"));
        assert!(!facts_of(&one).is_awaited(&other, "a"));
        assert!(facts_of(&one).is_awaited(&other, "b"));
        assert!(facts_of(&one).is_awaited(&request("1.0", &[("a", "another")]), "a"));
        assert!(!Answer { failures: 1, ..facts_of(&one) }.is_awaited(&other, "b"));
    }

    #[test]
    fn facts_without_a_request_are_of_every_request() {
        let answer = Answer { facts: Some(Facts::default()), ..Answer::default() };
        assert!(!answer.is_awaited(&request("1.0", &[("a", "x")]), "a"));
        assert_eq!(answer.clone().to(&request("1.0", &[])), answer);
    }

    #[test]
    fn the_first_file_that_can_be_read_counts() {
        let directory = tempfile::tempdir().unwrap();
        let files = ["a", "b", "c"].map(|name| directory.path().join(name));
        assert_eq!(Answer::read(&files), Answer::default());
        std::fs::write(&files[1], r#"{"failures": 2, "asking": {}}"#).unwrap();
        std::fs::write(&files[2], r#"{"failures": 3}"#).unwrap();
        assert_eq!(Answer::read(&files).failures, 2);
        std::fs::write(&files[0], "torn").unwrap();
        assert_eq!(Answer::read(&files), Answer::default());
    }
}
