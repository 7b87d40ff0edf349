# Makes C of text files: "spin.ptx" becomes `const char spin_ptx[]`, as the header given by
# -v header=bench/load/kernels.h declares it.
BEGIN { print "#include \"" header "\"" }
FNR == 1 {
    if (NR > 1)
        print ";"
    name = FILENAME
    sub(/.*\//, "", name)
    sub(/\./, "_", name)
    print "const char " name "[] ="
}
{
    gsub(/["\\]/, "\\\\&")
    print "    \"" $0 "\\n\""
}
END { print ";" }
