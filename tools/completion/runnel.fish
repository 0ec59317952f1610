# SPDX-License-Identifier: Apache-2.0
# Fish completion for runnel. It gets the subcommands and options from the command's --help, as the one for bash does.
function __runnel_complete
    set -l words (commandline -opc)
    set -l command $words[1]
    set -l subcommand (string match -v -- '-*' $words[2..])[1]
    if string match -q -- '-*' (commandline -ct)
        $command $subcommand --help 2>/dev/null | string replace -rf '^ +(?:-[a-z], *)?(--[a-z][a-z-]*)(?:\S| \S)* *' '$1\t'
    else if test -z "$subcommand"
        $command --help 2>/dev/null | string replace -rf '^  ([a-z]+) +' '$1\t'
    else
        __fish_complete_path (commandline -ct)
    end
end
for command in runnel runnel-cuda runnel-hip runnel-host
    complete -c $command -f -a '(__runnel_complete)'
end
