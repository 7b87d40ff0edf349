# Runs data/zsh-completion/_cede without a terminal, and prints what it offers, a word on each line. What zsh would
# complete itself is named in angle brackets.
# usage: zsh -f completion.zsh FILE WORD...     the last word is the one to complete; the first one is the command
emulate zsh
file=$1
words=("${@[2,-1]}")
CURRENT=$#words
service=$words[1]
_describe() { # [-o] [-t TAG] TEXT ARRAY of "WORD:TEXT"
    while [[ $1 == -* ]]; do [[ $1 == -t ]] && shift; shift; done
    local entry
    for entry in ${(P)2}; do print -r -- ${entry%%:*}; done
}
compadd() {
    while [[ $1 == -* && $1 != -- ]]; do [[ $1 == -S ]] && shift; shift; done
    print -rl -- "${@[2,-1]}"
}
_files() { print -r -- "<files>"; }
_users() { print -r -- "<users>"; }
_command_names() { print -r -- "<commands>"; }
_normal() { print -r -- "<normal> $words[CURRENT]"; }
source $file
