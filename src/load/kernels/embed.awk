# Makes C of text files: "spin.ptx" becomes `const char spin_ptx[]`, as load/kernels.h declares it.
BEGIN { print "#include \"load/kernels.h\"" }
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
