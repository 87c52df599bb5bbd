# Writes OUTPUT, a header with the commit of SOURCE; left alone when nothing changed, so that only a
# new commit recompiles its one reader. Runs at build time: a configure-time commit would go stale.
execute_process(COMMAND git describe --always --dirty --abbrev=12 --exclude=*
  WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "unknown") # A source archive has no history.
endif()
set(text "#pragma once\nnamespace kvd {\n")
string(APPEND text "inline constexpr const char* build_commit = \"${commit}\";\n")
string(APPEND text "inline constexpr const char* build_compiler = \"${COMPILER}\";\n}\n")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
