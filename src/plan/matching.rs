//! Lays tasks on slots so that as many as possible have one, earlier tasks first.
//!
//! Slots are counted by group, and kinds of tasks that the same groups fit are one, so that the work is in the number of
//! tasks and not in that of slots or kinds.
//! A task takes the best group that fits and has a slot left. If none has, tasks that were laid before move to other
//! groups that fit them, if that frees a slot (an augmenting path). Only then a closed slot is opened: a drain that can
//! be undone, then a stopped instance, at last a launch. So what is covered does not depend on who chose first, and slots that were opened and
//! then exist cover the same tasks again: planning after executing opens nothing more.

use std::collections::{BTreeMap, HashMap, VecDeque};

/// What slots a group has, best class first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// Of connected agents.
    Now,
    /// Of instances that boot.
    Booted,
    /// Of a pool's drains that can be undone.
    Drains,
    /// Of a pool's stopped instances.
    Starts,
    /// Of a pool's launches to come.
    Launches,
}

/// Slots that can be had by a step.
#[derive(Debug)]
pub(super) enum Closed {
    /// None.
    Nothing,
    /// Those of machines that exist, drains or stopped ones: free slots of each, the next one last.
    Each(Vec<u32>),
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
            Self::Each(slots) => slots.pop(),
            Self::Launches { room, slots } => {
                *room -= 1;
                Some(*slots)
            }
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Each(slots) => slots.is_empty(),
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
    /// How many drains, stopped instances or launches were opened.
    pub opened: u32,
    /// Tasks laid here, by sort.
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
    /// One of a drain to undo, of an instance to start or of a launch to come.
    Opened,
}

/// The groups and what is laid on them.
#[derive(Debug)]
pub(super) struct Matching {
    pub groups: Vec<Group>,
    /// By kind of task: its sort. Kinds of one sort fit the same groups equally well.
    sort_of: Vec<usize>,
    sorts: Vec<Sort>,
}

/// What is the same for some kinds of tasks.
#[derive(Debug)]
struct Sort {
    /// The groups that fit, best first.
    fits: Vec<usize>,
    /// Entries of `fits` at the front that are full for good.
    full: usize,
    /// Nothing can be had any more.
    exhausted: bool,
}

impl Matching {
    /// `fits`: by kind, the groups that fit, best first.
    pub fn new(groups: Vec<Group>, fits: Vec<Vec<usize>>) -> Self {
        let mut known: HashMap<Vec<usize>, usize> = HashMap::new();
        let mut sorts = Vec::new();
        let mut sort_of = Vec::with_capacity(fits.len());
        for fits in fits {
            let sort = *known.entry(fits).or_insert_with_key(|fits| {
                sorts.push(Sort { fits: fits.clone(), full: 0, exhausted: false });
                sorts.len() - 1
            });
            sort_of.push(sort);
        }
        Self { groups, sort_of, sorts }
    }

    /// The best group for a kind that has an open slot left.
    pub fn best(&mut self, kind: usize) -> Option<usize> {
        let Sort { fits, full, .. } = &mut self.sorts[self.sort_of[kind]];
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
        let sort = self.sort_of[kind];
        if self.sorts[sort].exhausted {
            return None;
        }
        if let Some(group) = self.best(kind) {
            self.groups[group].free -= 1;
            *self.groups[group].laid.entry(sort).or_default() += 1;
            return Some(self.placed_in(group));
        }
        let placed = self.make_room(sort);
        self.sorts[sort].exhausted = placed.is_none();
        placed
    }

    /// Takes a slot that no other task may have any more.
    pub fn reserve(&mut self, group: usize) {
        self.groups[group].free = self.groups[group].free.saturating_sub(1);
    }

    /// Gives each task that was placed its group: to be asked in the order in which they were placed.
    pub fn hand_out(&self) -> HandOut<'_> {
        let on = |sort: usize, group: usize| self.groups[group].laid.get(&sort).copied().unwrap_or(0);
        let of_sort = |(sort, Sort { fits, .. }): (usize, &Sort)| {
            fits.iter().map(|&group| (group, on(sort, group))).filter(|&(_, tasks)| tasks > 0).collect()
        };
        HandOut { sort_of: &self.sort_of, left: self.sorts.iter().enumerate().map(of_sort).collect() }
    }

    fn placed_in(&self, group: usize) -> Placed {
        match self.groups[group].class {
            Class::Now | Class::Booted => Placed::Standing,
            Class::Drains | Class::Starts | Class::Launches => Placed::Opened,
        }
    }

    /// Looks through every group that could be reached by moving tasks, nearest first: one with an open slot, else a
    /// drain to undo, else a stopped instance, else a launch.
    fn make_room(&mut self, sort: usize) -> Option<Placed> {
        // How each group was reached: the sort that would move there, and from where (`None`: the new task).
        let mut reached: Vec<Option<(usize, Option<usize>)>> = vec![None; self.groups.len()];
        let mut seen = vec![false; self.sorts.len()];
        let mut queue = VecDeque::from([(sort, None)]);
        seen[sort] = true;
        let mut openable: Option<(Class, usize)> = None;
        let mut end = None;
        'search: while let Some((mover, from)) = queue.pop_front() {
            for &group in &self.sorts[mover].fits {
                if reached[group].is_some() {
                    continue;
                }
                reached[group] = Some((mover, from));
                let Group { class, free, closed, laid, .. } = &self.groups[group];
                if *free > 0 {
                    end = Some(group);
                    break 'search;
                }
                if !closed.is_empty() && openable.is_none_or(|(best, _)| *class < best) {
                    openable = Some((*class, group));
                }
                for &other in laid.keys() {
                    if !std::mem::replace(&mut seen[other], true) {
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
        while let Some((mover, from)) = reached[group] {
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

/// What [`Matching::hand_out`] gives.
#[derive(Debug)]
pub(super) struct HandOut<'m> {
    sort_of: &'m [usize],
    /// By sort: groups and how many tasks they have left, best first.
    left: Vec<VecDeque<(usize, u32)>>,
}

impl HandOut<'_> {
    /// The group of the next task of this kind.
    pub fn next(&mut self, kind: usize) -> Option<usize> {
        let left = &mut self.left[self.sort_of[kind]];
        let (group, tasks) = left.front_mut()?;
        let group = *group;
        *tasks -= 1;
        if *tasks == 0 {
            left.pop_front();
        }
        Some(group)
    }
}
