//! Generic netlink, as far as devherd asks or hears.

mod family;
mod message;
mod socket;

pub(super) use family::Family;
#[cfg(test)]
pub(super) use message::encoded;
pub(super) use message::{Message, attributes, messages, text};
pub(super) use socket::{LONGEST_DATAGRAM, dump, listening};
