#!/bin/sh
# Starts the Woodpecker agent on an instance of Picus. cloud-init runs it once; running it again does no harm.
#
#   start-agent.sh            all of it: packages, metadata rules, Docker, image, agent
#   start-agent.sh metadata   only the metadata rules (picus-metadata.service, at every boot before Docker)
set -eu

etc=${PICUS_ETC:-/etc/picus}
name=woodpecker-agent

say() {
    echo "picus: $*"
}

# At a first boot the network, the mirror or the registry may not be there yet: about five minutes of trying.
retry() {
    attempt=1
    until "$@"; do
        if [ "$attempt" -ge 30 ]; then
            say "gave up after $attempt times: $1"
            return 1
        fi
        attempt=$((attempt + 1))
        sleep 10
    done
}

install_missing() {
    docker=docker.io iptables=iptables
    # Amazon Linux, Fedora and their kin.
    if command -v dnf >/dev/null; then docker=docker iptables=iptables-nft; fi
    set --
    command -v iptables >/dev/null || set -- "$@" "$iptables"
    command -v docker >/dev/null || set -- "$@" "$docker"
    [ $# -gt 0 ] || return 0
    say "installing $*"
    if command -v dnf >/dev/null; then
        retry dnf install -y "$@"
        return
    fi
    export DEBIAN_FRONTEND=noninteractive
    retry apt-get -o DPkg::Lock::Timeout=60 update
    retry apt-get -o DPkg::Lock::Timeout=60 install -y "$@"
}

# rule TOOL TABLE CHAIN WHAT…: first in its chain, once.
rule() {
    tool=$1 table=$2 chain=$3
    shift 3
    "$tool" -w 10 -t "$table" -C "$chain" "$@" 2>/dev/null || "$tool" -w 10 -t "$table" -I "$chain" "$@"
}

# Whoever reads the metadata reads the agent's secret. Containers are forwarded, so they pass raw/PREROUTING, a chain
# that Docker does not rebuild when it restarts; users of the machine itself pass OUTPUT. Root keeps its access:
# cloud-init needs it. Without the rules for IPv4 no agent is started; the others are for other clouds.
close_metadata() {
    rule iptables raw PREROUTING -d 169.254.169.254 -j DROP
    rule iptables filter OUTPUT -d 169.254.169.254 -m owner ! --uid-owner 0 -j REJECT
    for address in fd00:ec2::254 fe80::a9fe:a9fe; do
        rule ip6tables raw PREROUTING -d "$address" -j DROP || say "no rule for $address"
        rule ip6tables filter OUTPUT -d "$address" -m owner ! --uid-owner 0 -j REJECT || say "no rule for $address"
    done
}

start_docker() {
    systemctl daemon-reload
    systemctl enable picus-metadata.service
    systemctl enable --now docker
    retry docker info >/dev/null
}

start_agent() {
    if docker container inspect "$name" >/dev/null 2>&1; then
        say "the agent's container exists"
        docker start "$name" >/dev/null
        return
    fi
    IFS= read -r image <"$etc/image"
    retry docker pull --quiet "$image" || docker image inspect "$image" >/dev/null
    # By name and from this environment: releases of Docker differ in what they make of quotes in an --env-file.
    set --
    while IFS= read -r line; do
        export "${line?}"
        set -- "$@" --env "${line%%=*}"
    done <"$etc/agent.env"
    docker run --detach --restart always --name "$name" "$@" \
        --volume /var/run/docker.sock:/var/run/docker.sock \
        --volume "$name-config:/etc/woodpecker" \
        "$image" >/dev/null
    say "the agent is started"
}

if [ "${1:-}" = metadata ]; then
    close_metadata
    exit
fi
install_missing
close_metadata
start_docker
start_agent
