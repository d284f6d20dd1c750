# Words that depend on the project, such as run ids, come from rlm itself.
_rlm_words() {
    local cur="$2" line words
    COMPREPLY=()
    words=("${COMP_WORDS[@]:1:COMP_CWORD-1}")
    # bash splits words at `=`; just after it, that is the word at the cursor.
    if [[ "${COMP_WORDS[COMP_CWORD]}" == "=" ]]; then
        words+=("=")
        cur=""
    fi
    if [[ "$cur" != -* ]]; then
        while IFS= read -r line; do
            line="${line%%$'\t'*}"
            if [[ "$line" == "$cur"* ]]; then
                COMPREPLY+=("$line")
            fi
        done < <(command rlm COMPLETE -- ${words[@]+"${words[@]}"} "$cur" 2>/dev/null </dev/null)
    fi
    if [[ "${#COMPREPLY[@]}" -eq 0 ]]; then
        _rlm "$@"
    elif [[ "${#COMPREPLY[@]}" -eq 1 && "${COMPREPLY[0]}" == *= && "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        compopt -o nospace 2>/dev/null
    fi
    return 0
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _rlm_words -o nosort -o bashdefault -o default rlm
else
    complete -F _rlm_words -o bashdefault -o default rlm
fi
