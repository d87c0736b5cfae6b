//! Lays tasks on slots so that as many as possible have one, earlier tasks first.
//!
//! Slots are counted by group and tasks by kind, so that the work is in the number of tasks and not in that of slots.
//! A task takes the best group that fits and has a slot left. If none has, tasks that were laid before move to other
//! groups that fit them, if that frees a slot (an augmenting path). Only then a closed slot is opened: a drain that can
//! be undone, at last a launch. So what is covered does not depend on who chose first, and slots that were opened and
//! then exist cover the same tasks again: planning after executing opens nothing more.

use std::collections::{BTreeMap, VecDeque};

/// What slots a group has, best class first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// Of connected agents.
    Now,
    /// Of instances that boot.
    Booted,
    /// Of a pool's drains that can be undone.
    Drains,
    /// Of a pool's launches to come.
    Launches,
}

/// Slots that can be had by a step.
#[derive(Debug)]
pub(super) enum Closed {
    /// None.
    Nothing,
    /// Those of drains: free slots of each, the next one last.
    Drains(Vec<u32>),
    /// Those of launches.
    Launches {
        /// How many more.
        room: u32,
        /// Slots of each.
        slots: u32,
    },
}

impl Closed {
    fn open(&mut self) -> Option<u32> {
        match self {
            Self::Nothing | Self::Launches { room: 0, .. } => None,
            Self::Drains(drains) => drains.pop(),
            Self::Launches { room, slots } => {
                *room -= 1;
                Some(*slots)
            }
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Drains(drains) => drains.is_empty(),
            Self::Launches { room, slots } => *room == 0 || *slots == 0,
        }
    }
}

/// Slots that matching can't tell apart.
#[derive(Debug)]
pub(super) struct Group {
    pub class: Class,
    /// Open slots that nothing is laid on.
    pub free: u64,
    pub closed: Closed,
    /// How many drains or launches were opened.
    pub opened: u32,
    /// Tasks laid here, by kind.
    laid: BTreeMap<usize, u32>,
}

impl Group {
    pub fn new(class: Class, free: u64, closed: Closed) -> Self {
        Self { class, free, closed, opened: 0, laid: BTreeMap::new() }
    }
}

/// How a task got its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placed {
    /// One that exists.
    Standing,
    /// One of a drain to undo or of a launch to come.
    Opened,
}

/// The groups and what is laid on them.
#[derive(Debug)]
pub(super) struct Matching {
    pub groups: Vec<Group>,
    /// By kind: the groups that fit, best first.
    fits: Vec<Vec<usize>>,
    /// By kind: entries of `fits` at the front that are full for good.
    full: Vec<usize>,
    /// By kind: nothing can be had any more.
    exhausted: Vec<bool>,
}

impl Matching {
    pub fn new(groups: Vec<Group>, fits: Vec<Vec<usize>>) -> Self {
        let kinds = fits.len();
        Self { groups, fits, full: vec![0; kinds], exhausted: vec![false; kinds] }
    }

    /// The best group for a kind that has an open slot left.
    pub fn best(&mut self, kind: usize) -> Option<usize> {
        let fits = &self.fits[kind];
        let full = &mut self.full[kind];
        // Open slots only become fewer, except where some can still be opened.
        while let Some(group) = fits.get(*full).map(|&group| &self.groups[group])
            && group.free == 0
            && group.closed.is_empty()
        {
            *full += 1;
        }
        fits[*full..].iter().copied().find(|&group| self.groups[group].free > 0)
    }

    /// Lays a task of this kind. `None`: there is no slot to be had for it.
    pub fn place(&mut self, kind: usize) -> Option<Placed> {
        if self.exhausted[kind] {
            return None;
        }
        if let Some(group) = self.best(kind) {
            self.groups[group].free -= 1;
            *self.groups[group].laid.entry(kind).or_default() += 1;
            return Some(self.placed_in(group));
        }
        let placed = self.make_room(kind);
        self.exhausted[kind] = placed.is_none();
        placed
    }

    /// Takes a slot that no other task may have any more.
    pub fn reserve(&mut self, group: usize) {
        self.groups[group].free = self.groups[group].free.saturating_sub(1);
    }

    /// How many tasks of each kind are laid on each group, best first.
    pub fn laid(&self) -> Vec<VecDeque<(usize, u32)>> {
        let on = |kind: usize, group: usize| self.groups[group].laid.get(&kind).copied().unwrap_or(0);
        let of_kind = |(kind, fits): (usize, &Vec<usize>)| {
            fits.iter().map(|&group| (group, on(kind, group))).filter(|&(_, tasks)| tasks > 0).collect()
        };
        self.fits.iter().enumerate().map(of_kind).collect()
    }

    fn placed_in(&self, group: usize) -> Placed {
        match self.groups[group].class {
            Class::Now | Class::Booted => Placed::Standing,
            Class::Drains | Class::Launches => Placed::Opened,
        }
    }

    /// Looks through every group that could be reached by moving tasks, nearest first: one with an open slot, else a
    /// drain to undo, else a launch.
    fn make_room(&mut self, kind: usize) -> Option<Placed> {
        // How each group was reached: the kind that would move there, and from where (`None`: the new task).
        let mut reached: BTreeMap<usize, (usize, Option<usize>)> = BTreeMap::new();
        let mut seen_kinds = vec![false; self.fits.len()];
        let mut queue = VecDeque::from([(kind, None)]);
        seen_kinds[kind] = true;
        let mut openable: Option<(Class, usize)> = None;
        let mut end = None;
        'search: while let Some((mover, from)) = queue.pop_front() {
            for &group in &self.fits[mover] {
                if reached.contains_key(&group) {
                    continue;
                }
                reached.insert(group, (mover, from));
                let Group { class, free, closed, laid, .. } = &self.groups[group];
                if *free > 0 {
                    end = Some(group);
                    break 'search;
                }
                if !closed.is_empty() && openable.is_none_or(|(best, _)| *class < best) {
                    openable = Some((*class, group));
                }
                for &other in laid.keys() {
                    if !std::mem::replace(&mut seen_kinds[other], true) {
                        queue.push_back((other, Some(group)));
                    }
                }
            }
        }
        if end.is_none() {
            let (_, group) = openable?;
            self.groups[group].free += u64::from(self.groups[group].closed.open()?);
            self.groups[group].opened += 1;
            end = Some(group);
        }
        let mut group = end?;
        let placed = self.placed_in(group);
        self.groups[group].free -= 1;
        while let Some(&(mover, from)) = reached.get(&group) {
            *self.groups[group].laid.entry(mover).or_default() += 1;
            let Some(from) = from else { break };
            if let Some(tasks) = self.groups[from].laid.get_mut(&mover) {
                *tasks -= 1;
                if *tasks == 0 {
                    self.groups[from].laid.remove(&mover);
                }
            }
            group = from;
        }
        Some(placed)
    }
}
