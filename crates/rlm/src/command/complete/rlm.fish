# Words that depend on the project, such as run ids, come from rlm itself.
function __rlm_find_words
    set -l words (commandline -opc)
    set -e words[1]
    set -l cur (commandline -ct)
    set -g __rlm_words
    string match -q -- '-*' $cur
    and return 1
    set -g __rlm_words (command rlm COMPLETE -- $words "$cur" 2>/dev/null </dev/null)
    test (count $__rlm_words) -gt 0
end

complete -c rlm -n __rlm_find_words -f -k -a '(string join \n -- $__rlm_words)'
