########### AGGREGATED COMPONENTS AND DEPENDENCIES FOR THE MULTI CONFIG #####################
#############################################################################################

set(runnel_COMPONENT_NAMES "")
if(DEFINED runnel_FIND_DEPENDENCY_NAMES)
  list(APPEND runnel_FIND_DEPENDENCY_NAMES )
  list(REMOVE_DUPLICATES runnel_FIND_DEPENDENCY_NAMES)
else()
  set(runnel_FIND_DEPENDENCY_NAMES )
endif()

########### VARIABLES #######################################################################
#############################################################################################
set(runnel_PACKAGE_FOLDER_RELEASE "/tmp/conan-home/p/b/runneebcfc6294fc30/p")
set(runnel_BUILD_MODULES_PATHS_RELEASE )


set(runnel_INCLUDE_DIRS_RELEASE "${runnel_PACKAGE_FOLDER_RELEASE}/include/runnel-host")
set(runnel_RES_DIRS_RELEASE )
set(runnel_DEFINITIONS_RELEASE )
set(runnel_SHARED_LINK_FLAGS_RELEASE )
set(runnel_EXE_LINK_FLAGS_RELEASE )
set(runnel_OBJECTS_RELEASE )
set(runnel_COMPILE_DEFINITIONS_RELEASE )
set(runnel_COMPILE_OPTIONS_C_RELEASE )
set(runnel_COMPILE_OPTIONS_CXX_RELEASE )
set(runnel_LIB_DIRS_RELEASE "${runnel_PACKAGE_FOLDER_RELEASE}/lib")
set(runnel_BIN_DIRS_RELEASE "${runnel_PACKAGE_FOLDER_RELEASE}/bin")
set(runnel_LIBRARY_TYPE_RELEASE SHARED)
set(runnel_IS_HOST_WINDOWS_RELEASE 0)
set(runnel_LIBS_RELEASE runnel-host)
set(runnel_SYSTEM_LIBS_RELEASE pthread)
set(runnel_FRAMEWORK_DIRS_RELEASE )
set(runnel_FRAMEWORKS_RELEASE )
set(runnel_BUILD_DIRS_RELEASE )
set(runnel_NO_SONAME_MODE_RELEASE FALSE)


# COMPOUND VARIABLES
set(runnel_COMPILE_OPTIONS_RELEASE)
if (NOT "${runnel_COMPILE_OPTIONS_CXX_RELEASE}" STREQUAL "")
    list(APPEND runnel_COMPILE_OPTIONS_RELEASE
        "$<$<COMPILE_LANGUAGE:CXX>:${runnel_COMPILE_OPTIONS_CXX_RELEASE}>")
endif ()
if (NOT "${runnel_COMPILE_OPTIONS_C_RELEASE}" STREQUAL "")
    list(APPEND runnel_COMPILE_OPTIONS_RELEASE
        "$<$<COMPILE_LANGUAGE:C>:${runnel_COMPILE_OPTIONS_C_RELEASE}>")
endif ()
set(runnel_LINKER_FLAGS_RELEASE)
if (NOT "${runnel_SHARED_LINK_FLAGS_RELEASE}" STREQUAL "")
    list(APPEND runnel_LINKER_FLAGS_RELEASE
        "$<$<OR:$<STREQUAL:$<TARGET_PROPERTY:TYPE>,SHARED_LIBRARY>,$<STREQUAL:$<TARGET_PROPERTY:TYPE>,MODULE_LIBRARY>>:${runnel_SHARED_LINK_FLAGS_RELEASE}>")
endif ()
if (NOT "${runnel_EXE_LINK_FLAGS_RELEASE}" STREQUAL "")
    list(APPEND runnel_LINKER_FLAGS_RELEASE
        "$<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:${runnel_EXE_LINK_FLAGS_RELEASE}>")
endif ()


set(runnel_COMPONENTS_RELEASE )