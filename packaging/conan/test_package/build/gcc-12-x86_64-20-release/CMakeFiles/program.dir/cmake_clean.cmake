file(REMOVE_RECURSE
  "CMakeFiles/program.dir/work/users/tests/integration/consumers/program.cpp.o"
  "CMakeFiles/program.dir/work/users/tests/integration/consumers/program.cpp.o.d"
  "program"
  "program.pdb"
)

# Per-language clean rules from dependency scanning.
foreach(lang CXX)
  include(CMakeFiles/program.dir/cmake_clean_${lang}.cmake OPTIONAL)
endforeach()
