//! Which callers wait, and which were served how often of late.
//!
//! Decides only what is remembered: counts for each of 64 groups of callers, those of the served halved again and again. Callers
//! that fall into one group share its turns.

const GROUPS: usize = 64;
/// After this many, the counts of the served are halved.
const MOST: u32 = 512;

#[derive(Clone, Debug)]
pub(super) struct Callers {
    groups: [Group; GROUPS],
    served: u32,
    waiting: u32, // groups of which somebody waits
}

#[derive(Clone, Copy, Debug, Default)]
struct Group {
    served: u32,
    waiting: u32,
}

impl Callers {
    pub(super) fn came(&mut self, peer: u64) {
        let group = &mut self.groups[group(peer)];
        self.waiting += u32::from(group.waiting == 0);
        group.waiting += 1;
    }

    pub(super) fn went(&mut self, peer: u64) {
        let group = &mut self.groups[group(peer)];
        group.waiting -= 1;
        self.waiting -= u32::from(group.waiting == 0);
    }

    /// Whether there is anybody to be fair to.
    pub(super) fn are_several(&self) -> bool {
        self.waiting > 1
    }

    pub(super) fn served(&mut self, peer: u64) {
        self.groups[group(peer)].served += 1;
        self.served += 1;
        if self.served >= MOST {
            self.groups.iter_mut().for_each(|group| group.served /= 2);
            self.served = self.groups.iter().map(|group| group.served).sum();
        }
    }

    pub(super) fn served_of(&self, peer: u64) -> u32 {
        self.groups[group(peer)].served
    }
}

impl Default for Callers {
    fn default() -> Self {
        Self { groups: [Group::default(); GROUPS], served: 0, waiting: 0 }
    }
}

/// Numbers that follow one another, as addresses do, fall into different groups.
fn group(peer: u64) -> usize {
    (peer.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize
}
