//! Which stopped instances are of use: what each would have once it is up, and which are past their time.

use jiff::Timestamp;

use super::fleet::Machine;
use crate::model::age;
use crate::model::ids::InstanceId;
use crate::model::machine::MachineState;
use crate::model::pool::{Pool, RetireTo};
use crate::model::reason::Reason;

/// The instance on which a drain is noted: where a stopped instance keeps its record, a cordon outlives the process.
pub(super) fn noted_on<'a>(machine: &Machine<'a>, pool: &Pool) -> Option<&'a InstanceId> {
    machine.instance.filter(|_| pool.keeps_stopped()).map(|instance| &instance.id)
}

/// Why a stopped instance that Picus launched is not started again but deleted. Machines that somebody else made are never
/// past their time.
pub(super) fn past_its_time(machine: &Machine<'_>, pool: &Pool, now: Timestamp) -> Option<Reason> {
    let RetireTo::Stop { max_age } = pool.retire else { return None };
    let instance = machine.instance.filter(|_| !pool.is_fixed() && machine.state == MachineState::Stopped)?;
    let changed = instance.launch_settings.is_some() && instance.launch_settings != pool.launch_settings;
    if changed && pool.launch_settings.is_some() {
        return Some(Reason::SettingsChanged);
    }
    let since = instance.stopped_since.unwrap_or(machine.launched);
    (age(now, since) >= max_age).then_some(Reason::StoppedFor { since })
}
