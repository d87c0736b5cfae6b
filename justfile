# The project's commands; `.ci/run` calls the same. `just` lists them.
#
# Two need nothing but Rust and stand in README.md: `just demo` and `just test` read them there, so that what a
# newcomer types is what is tested. The tools that the rest needs are installed by `.ci/run`.

set shell := ["bash", "-euo", "pipefail", "-c"]

# Lists the commands.
default:
    @just --list --unsorted

# Everything that has a checker, without the tests.
check: lock markers fmt-check clippy clippy-bare clippy-each doc shell yaml docker compose aws alerts helm systemd deny

# README's test command.
test:
    command=$(just _readme test); echo "$command"; $command

# README's demo command.
demo:
    command=$(just _readme demo); echo "$command"; $command

# How long a plan takes, and what is shown of it; the aims stand in benches.
bench:
    cargo bench --locked --bench plan --bench serve

# What the release build takes while there is nothing to do: five minutes, and the figures of ARCHITECTURE.md.
at-rest:
    cargo build --locked --release
    PROGRAM="$(realpath "${CARGO_TARGET_DIR:-target}")/release/picus" cargo test --locked --test it at_rest_the_program -- --ignored --nocapture

# Writes the tables of settings (README.md) and metrics (docs/metrics.md) from the registries in the code.
tables:
    UPDATE_README=1 cargo test --locked --lib _table_of_the

# Formats the code.
fmt:
    cargo fmt

# Builds the container image.
image:
    docker build --build-arg REVISION="$(git rev-parse HEAD)" --tag picus:{{ version }} .

version := `sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1`

# The lock file is up to date and names one source: crates.io.
lock:
    cargo metadata --locked --format-version 1 > /dev/null
    ! grep '^source = ' Cargo.lock | grep --invert-match --line-regexp --fixed-strings 'source = "registry+https://github.com/rust-lang/crates.io-index"'

# No leftover of a merge.
markers:
    ! git grep --line-number --extended-regexp '^(<{7}|>{7}|[|]{7}) '

# The code is formatted.
fmt-check:
    cargo fmt --check

# Lints, warnings denied.
clippy:
    cargo clippy --locked --all-targets -- -D warnings

# The same for the build without any provider.
clippy-bare:
    cargo clippy --locked --lib --bins --no-default-features -- -D warnings

# The same for each build with one provider.
clippy-each:
    cargo clippy --locked --all-targets --no-default-features --features hcloud -- -D warnings
    cargo clippy --locked --all-targets --no-default-features --features aws -- -D warnings

# The documentation builds, warnings denied.
doc:
    RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps

# Shell scripts, found by name and by first line.
shell:
    git ls-files -z | xargs -0 awk 'FNR == 1 { if (FILENAME ~ /\.sh$/ || /^#!.*[\/ ](ba|da)?sh$/) print FILENAME; nextfile }' | xargs shellcheck

# YAML files.
yaml:
    git ls-files -z '*.yml' '*.yaml' .yamllint ':!tests/fixtures' ':!deploy/helm/picus/templates' | xargs -0 yamllint --strict

# The Dockerfile.
docker:
    hadolint Dockerfile

# The compose files, with docker compose or the parser that it uses.
compose:
    #!/usr/bin/env bash
    set -euo pipefail
    cd deploy/compose
    for files in "docker-compose.yml" "docker-compose.yml pools.yml" "docker-compose.yml aws.yml"; do
        if docker compose version > /dev/null 2>&1; then
            # shellcheck disable=SC2086
            docker compose --env-file .env.example ${files:+$(printf -- '--file %s ' $files)} config --quiet
        elif command -v compose-spec > /dev/null; then
            # shellcheck disable=SC2086
            compose-spec -no-interpolation $files > /dev/null
        else
            echo "neither docker compose nor compose-spec is here: only tests/it/compose.rs looks at $files"
        fi
    done

# The CloudFormation template, and the policies as part of one.
aws:
    cfn-lint deploy/aws/*.yaml
    for policy in deploy/aws/*.json; do \
        printf '{"AWSTemplateFormatVersion": "2010-09-09", "Resources": {"Policy": {"Type": "AWS::IAM::ManagedPolicy", "Properties": {"PolicyDocument": %s}}}}' "$(cat "$policy")" \
            | cfn-lint --format parseable | cut -c 1-200; \
    done

# The alerts, and whether they fire when they should.
alerts:
    promtool check rules deploy/prometheus/rules.yaml
    promtool test rules deploy/prometheus/rules.test.yaml

# The Helm chart: what it renders is valid, and Picus accepts it.
helm:
    cargo build --locked
    python deploy/helm/check.py "${CARGO_TARGET_DIR:-target}/debug/picus"

# The systemd unit: systemd reads it without complaint, and finds little that it exposes.
systemd:
    #!/usr/bin/env bash
    set -euo pipefail
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    # The program need not be installed here.
    sed 's#^ExecStart=[^ ]*#ExecStart=/bin/true#' deploy/systemd/picus.service > "$folder/picus.service"
    systemd-analyze verify "$folder/picus.service"
    systemd-analyze security --offline=true --threshold=25 "$folder/picus.service" | tail -n 1

# Licences, sources and duplicates of the dependencies.
deny:
    cargo deny --locked check --hide-inclusion-graph bans licenses sources

# The one line of the fenced block in README.md that follows the comment `<!-- just NAME -->`.
_readme name:
    @awk -v mark='<!-- just {{ name }} -->' '$0 == mark { found = 1 } found && /^```/ { fence++; next } found && fence == 1 { print; lines++ } fence == 2 { exit } END { exit lines != 1 }' README.md
