#!/bin/bash
# SPDX-License-Identifier: MIT
# What bash offers at a few places of a command line, as the shell itself would ask for it.
# usage: completion_test.sh <completion script> <mainarch>
set -u
# shellcheck disable=SC1090
source "$1"
mainarch=$2
failed=0

# A command line with the cursor at its end -> the words offered, sorted, on one line.
offer() {
  local line=$1 words
  # As readline cuts it: at blanks, and ':' and '=' are words of their own.
  words=$(sed -e 's/[:=]/ & /g' <<<"$line")
  read -r -a COMP_WORDS <<<"$words"
  [[ $line == *' ' ]] && COMP_WORDS+=('')
  COMP_WORDS[0]=$mainarch
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  COMP_LINE=$line COMP_POINT=${#line}
  compopt() { :; } # only inside a completion
  _mainarch "$mainarch" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
  printf '%s\n' "${COMPREPLY[@]}" | sort -u | paste -sd' '
}

expect() { # LINE OFFERED
  local got
  got=$(offer "$1")
  [[ $got == "$2" ]] || { echo "FAIL: '$1' offers '$got', expected '$2'"; failed=1; }
}

holds() { # LINE WORD...
  local got word
  got=" $(offer "$1") "
  shift
  for word; do
    [[ $got == *" $word "* ]] || { echo "FAIL: no $word among '$got'"; failed=1; }
  done
}

expect 'mainarch gen' generate
expect 'mainarch help mod' model-decode
holds 'mainarch ' generate model-decode bench tokenize inspect make-checkpoint topology doctor sim \
  kernels version help
expect 'mainarch generate --max' --max-tokens
expect 'mainarch generate --kv ' 'bf16 f32 fp4 fp8 k8v4'
expect 'mainarch generate --kv b' bf16
expect 'mainarch generate --kv=f' 'f32 fp4 fp8'
expect 'mainarch generate --device cpu:' '2 4 8'
expect 'mainarch generate --device=sim:gfx950x' gfx950x8
expect 'mainarch generate --thinking ' 'default off on'
expect 'mainarch generate --model ' '' # files, which bash finds itself
expect 'mainarch generate --greedy --seed 3 --temp' --temperature
expect 'mainarch bench --preset qwen3-0' qwen3-0.6b
expect 'mainarch make-checkpoint x --tied ' 'no yes'
expect 'mainarch sim --no' --node
holds 'mainarch sim --' --faults --log --node
holds 'mainarch sim -- ech' echo
expect 'mainarch sim -- echo ' ''
expect 'mainarch nothing --' --help
# All options of all commands.
for command in $("$mainarch" help | sed -n 's/^  \([a-z][a-z-]*\)  .*/\1/p'); do
  [[ $command == help ]] && continue
  for option in $("$mainarch" help "$command" | sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p'); do
    holds "mainarch $command $option" "$option"
  done
done

# In a shell as a user has it: loaded on demand by bash-completion, from where it is installed.
if [[ -r /usr/share/bash-completion/bash_completion ]]; then
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  mkdir -p "$scratch/bash-completion/completions"
  cp "$1" "$scratch/bash-completion/completions/mainarch"
  loaded=$(XDG_DATA_HOME=$scratch PATH=${mainarch%/*}:$PATH bash --norc -ic \
    '. /usr/share/bash-completion/bash_completion; _completion_loader mainarch; complete -p mainarch' \
    2>/dev/null)
  [[ $loaded == 'complete -F _mainarch mainarch' ]] || { echo "FAIL: loaded as '$loaded'"; failed=1; }
else
  echo '# SKIPPED loading on demand: the package bash-completion is absent'
fi
[[ $failed == 0 ]] && echo ok
exit $failed
