# Words that depend on the project, such as run ids, come from rlm itself.
_rlm() {
    local -a found keys
    local ret=1
    if [[ "$PREFIX" != -* ]]; then
        found=("${(@f)$(command rlm COMPLETE -- "${(@Q)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null </dev/null)}")
        keys=(${${(M)found:#*=$'\t'*}%%$'\t'*})
        found=(${found:#*=$'\t'*})
        # A tab separates a word from its description; zsh wants a colon.
        found=("${(@)found/$'\t'/:}")
        (( $#found )) && _describe -V -t words 'word' found && ret=0
        (( $#keys )) && _describe -V -t keys 'key' keys -S '' && ret=0
    fi
    (( ret )) && _rlm_arguments "$@" && ret=0
    return ret
}
