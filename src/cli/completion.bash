# SPDX-License-Identifier: MIT
# Completion of mainarch(1) for bash. What there is to complete is asked of the command itself, so
# it is never older than the command. Needs nothing of the package bash-completion.

_mainarch_options() { # MAINARCH COMMAND: the options that its help lists
  "$1" help "$2" 2>/dev/null | sed -n -e 's/^  \(--[a-z]\)/\1/p' -e '/^usage:/s/\[/\n/gp' |
    sed -n 's/^\(--[a-z][a-z0-9-]*\).*/\1/p'
}

_mainarch_value() { # MAINARCH COMMAND OPTION: the name of its value, "a|b" for a choice; or nothing
  "$1" help "$2" 2>/dev/null |
    sed -n -e "s/^  $3 \([^ ][^ ]*\).*/\1/p" -e "s/^usage:.*\[$3 \([^]]*\)\].*/\1/p"
}

_mainarch_candidates() { # MAINARCH COMMAND OPTION: what may stand behind the option, a word a line
  local value
  case $3 in
    --device)
      printf '%s\n' cpu cpu:2 cpu:4 cpu:8 gpu sim:gfx942x8 sim:gfx950 sim:gfx950x8
      return
      ;;
    --node)
      printf '%s\n' gfx90a gfx942 gfx942x8 gfx950 gfx950x8
      return
      ;;
    --preset)
      "$1" make-checkpoint --list 2>/dev/null | sed -n '2,$s/ .*//p'
      return
      ;;
  esac
  value=$(_mainarch_value "$1" "$2" "$3")
  case $value in *'|'*) printf '%s\n' "${value//|/$'\n'}" ;; esac
}

_mainarch() {
  local mainarch=$1 cur=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} i
  # The whole word under the cursor: bash cuts words at ':' and '=', too.
  local line=${COMP_LINE:0:COMP_POINT}
  local word=${line##*[[:space:]]} option='' words=''
  COMPREPLY=()
  [[ $cur == [:=] ]] && cur=''

  # Behind `--` stands the program that sim runs.
  if [[ $command == sim ]]; then
    for ((i = 2; i < COMP_CWORD; ++i)); do
      [[ ${COMP_WORDS[i]} == -- ]] || continue
      if ((i + 1 == COMP_CWORD)); then
        mapfile -t COMPREPLY < <(compgen -c -- "$cur")
      else
        compopt -o default 2>/dev/null
      fi
      return
    done
  fi

  if ((COMP_CWORD == 1)) || [[ $command == help && $COMP_CWORD -eq 2 ]]; then
    words=$("$mainarch" help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\)  *.*/\1/p')$'\nhelp'
  elif [[ $word == --*=* ]]; then
    option=${word%%=*}
    words=$(_mainarch_candidates "$mainarch" "$command" "$option" | sed "s/^/$option=/")
  else
    # The word before the whole one.
    option=${line%"$word"}
    read -r -a i <<<"$option"
    option=${i[${#i[@]} - 1]}
    if [[ $option == --* && $option != *=* &&
      -n $(_mainarch_value "$mainarch" "$command" "$option") ]]; then
      words=$(_mainarch_candidates "$mainarch" "$command" "$option")
    elif [[ $word == -* ]]; then
      words=$(_mainarch_options "$mainarch" "$command")$'\n--help'
    fi
  fi

  if [[ -z $words ]]; then
    compopt -o default 2>/dev/null # files
    return
  fi
  local IFS=$'\n'
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  # Give back only what comes after the last ':' or '=' at which bash has cut.
  local before=${word%"${word##*[:=]}"}
  COMPREPLY=("${COMPREPLY[@]#"$before"}")
}

complete -F _mainarch mainarch
