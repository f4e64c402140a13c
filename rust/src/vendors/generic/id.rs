//! The ids of generic-device-plugin: pods keep their devices when a node moves from it to devherd.

use data_encoding::HEXLOWER;
use sha1::{Digest, Sha1};

/// The id of one instance of a group: SHA-1 of its number and of the host paths of its members, in order, all joined.
///
/// The parts are joined without a separator, so different paths can share an id (`/a`, `/b` and `/a/b`).
pub(super) fn of(instance: u32, paths: &[&str]) -> String {
    let mut hash = Sha1::new_with_prefix(instance.to_string());
    for path in paths {
        hash.update(path);
    }
    HEXLOWER.encode(&hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_generic_device_plugin() {
        assert_eq!(of(0, &["/dev/video0"]), "f88ae3a1aba46ffcde26322d41d7d2c9a79fa77c");
    }

    #[test]
    fn an_id_says_the_instance_and_every_path_in_order() {
        let ids = [of(0, &["/a", "/b"]), of(1, &["/a", "/b"]), of(0, &["/b", "/a"]), of(0, &["/a"])];
        assert!((1..ids.len()).all(|place| !ids[..place].contains(&ids[place])), "{ids:?}");
        assert_eq!(ids[0], of(0, &["/a/b"]));
    }
}
