//! Families of generic netlink, by name: <https://docs.kernel.org/networking/generic_netlink.html>.

use std::io;

use rustix::io::Errno;

use super::message::{Message, attributes, short, text};
use super::socket::ask;

/// The family that knows the others, of `linux/genetlink.h`.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const MULTICAST_GROUPS: u16 = 7;
const GROUP_NAME: u16 = 1;
const GROUP_ID: u16 = 2;

/// A family that the kernel has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::events) struct Family {
    pub(in crate::events) id: u16,
    /// Multicast groups by name.
    groups: Vec<(String, u32)>,
}

impl Family {
    /// The family of this name; `None` where the kernel has none. Waits for the kernel, which may be loading it.
    ///
    /// # Errors
    /// What the kernel refuses with.
    pub(in crate::events) fn named(name: &str) -> io::Result<Option<Self>> {
        let name = [name.as_bytes(), b"\0"].concat();
        let mut found = None;
        let take = &mut |message: Message<'_>| found = Self::parsed(message);
        match ask(CONTROL, GET_FAMILY, &[(FAMILY_NAME, &name)], false, take) {
            Ok(_) => Ok(found),
            Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The number of one of its multicast groups.
    pub(in crate::events) fn group(&self, name: &str) -> Option<u32> {
        self.groups.iter().find(|(known, _)| known == name).map(|&(_, number)| number)
    }

    fn parsed(message: Message<'_>) -> Option<Self> {
        let (mut id, mut groups) = (None, Vec::new());
        for (number, value) in message.attributes() {
            match number {
                FAMILY_ID => id = short(value, 0),
                MULTICAST_GROUPS => groups.extend(attributes(value).filter_map(|(_, group)| group_in(group))),
                _ => {}
            }
        }
        Some(Self { id: id?, groups })
    }
}

fn group_in(bytes: &[u8]) -> Option<(String, u32)> {
    let (mut name, mut id) = (None, None);
    for (number, value) in attributes(bytes) {
        match number {
            GROUP_NAME => name = Some(text(value)),
            GROUP_ID => id = value.get(..4).and_then(|id| Some(u32::from_ne_bytes(id.try_into().ok()?))),
            _ => {}
        }
    }
    Some((name?, id?))
}

#[cfg(test)]
mod tests {
    use super::super::socket::{dump, listening};
    use super::*;

    #[test]
    fn the_kernel_knows_the_family_of_families_and_its_group() {
        let family = Family::named("nlctrl").unwrap().unwrap();
        assert_eq!(family.id, CONTROL);
        assert!(family.group("notify").is_some_and(|number| number > 0), "{family:?}");
        listening(family.group("notify").unwrap()).unwrap();
    }

    #[test]
    fn a_family_that_the_kernel_has_not_is_no_error() {
        assert_eq!(Family::named("devherd-none").unwrap(), None);
    }

    #[test]
    fn a_dump_of_the_kernel_comes_to_its_end() {
        let mut names = Vec::new();
        let take = &mut |message: Message<'_>| {
            names.extend(message.attributes().filter(|(number, _)| *number == FAMILY_NAME).map(|(_, name)| text(name)));
        };
        assert!(dump(CONTROL, GET_FAMILY, take).unwrap());
        assert!(names.contains(&"nlctrl".to_owned()), "{names:?}");
    }
}
